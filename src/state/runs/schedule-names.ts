/** The name of the nightly schedule, in the state and in the queue. */
export const NIGHTLY = 'nightly';
