// A request that the sandbox refuses as a whole: thrown where the reason is known, answered in one place.

export class Refusal extends Error {
  override readonly name = 'Refusal';
  readonly status: number;
  readonly headers: Record<string, string>;

  constructor(status: number, message: string, headers: Record<string, string> = {}) {
    super(message);
    this.status = status;
    this.headers = headers;
  }
}
