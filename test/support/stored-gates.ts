// A gate that a test writes as rows: what a plan would have written.

/** A statement that closes the gate of 11 deactivations of a stream, which this run has met. */
export const holdRetirements = (stream: string, runId = 1) => `
  INSERT INTO slotsync.gates (stream, operation, reason, run_id, count, digest, facts)
    VALUES ('${stream}', 'retire', 'limit', ${runId}, 11, '11 1 1', '{"accepted": 40}');
  INSERT INTO slotsync.held (stream, local_key, operation, gate, reason)
    SELECT '${stream}', 'r' || number, 'retire', 'retire', 'limit' FROM generate_series(1, 11) AS number;`;
