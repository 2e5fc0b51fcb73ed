// Completes a build with the SQL that src/ reads at run time. Works where there is no `cp`.
import { cpSync } from 'node:fs';

cpSync('src/demo/university.sql', 'dist/demo/university.sql');
