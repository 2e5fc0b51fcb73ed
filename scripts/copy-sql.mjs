// Completes a build with what src/ reads at run time: SQL, and what the page's browser loads. Works where there is no `cp`.
import { cpSync } from 'node:fs';

cpSync('src/demo/university.sql', 'dist/demo/university.sql');
for (const file of ['page.css', 'browser.js', 'icon.svg']) cpSync(`src/page/${file}`, `dist/page/${file}`);
