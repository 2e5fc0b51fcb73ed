/** Creates a promise that the test settles. Node 20 has no Promise.withResolvers. */
export function createLater<T = void>() {
  let resolve: (value: T) => void = () => undefined;
  let reject: (error: Error) => void = () => undefined;
  const promise = new Promise<T>((...settle) => ([resolve, reject] = settle));
  return { promise, resolve: (value: T) => resolve(value), reject: (error: Error) => reject(error) };
}
