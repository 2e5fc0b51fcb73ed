// Removes what a build made, so that no file outlives its source. Works where there is no `rm`.
import { rmSync } from 'node:fs';

rmSync('dist', { recursive: true, force: true });
