import { playDemo, type DemoOptions } from '../demo/play-demo.js';
import { EXIT } from './command.js';

export async function demo(options: DemoOptions): Promise<number> {
  return (await playDemo(process.argv[1] ?? '', options)) ? EXIT.done : EXIT.failed;
}
