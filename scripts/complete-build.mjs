// Completes a build: copies the SQL and the files of the page that are read at run time, and makes the command executable.
// Works where there is no `cp`.
import { chmodSync, cpSync } from 'node:fs';

cpSync('src/demo/university.sql', 'dist/demo/university.sql');
for (const file of ['page.css', 'browser.js', 'icon.svg']) cpSync(`src/page/${file}`, `dist/page/${file}`);
// `npx slotsync` runs this file through a link that npm makes once, and sets its mode once: each later build writes it as 0644.
chmodSync('dist/cli.js', 0o755);
