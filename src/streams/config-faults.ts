// A fault of the configuration file: its place, and what to write instead.
export interface Fault {
  /** Dotted path in the file: `streams.rooms.key`. */
  path: string;
  message: string;
}

export function describeFault({ path, message }: Fault): string {
  return path === '' ? message : `${path}: ${message}`;
}
