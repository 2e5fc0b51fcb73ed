// Actions on the operator's page, which call the functions of the commands. An action first asks for confirmation and
// shows the number of affected records. It is refused if that number has grown meanwhile.
import { UsageError } from '../errors/errors.js';
import { formatNumber, plural, sum } from '../text/format.js';
import type { Logger } from '../process/logger.js';
import { listCauses } from '../situation/causes.js';
import { statusInWords } from '../documents/causes.js';
import { text, type Document, type Point } from '../documents/document.js';
import { describeApproval, describeHeld, gateToQuestion } from '../documents/holds.js';
import { actAs, noteAction, toRecords, toRuns, type Actor } from '../state/actions.js';
import type { Queries, State } from '../state/database.js';
import { chooseGates, rejectGates } from '../state/gates/answers.js';
import { addChanges } from '../state/inbox/add-changes.js';
import { listProcesses } from '../state/processes.js';
import { retryRecords } from '../state/records/retry-records.js';
import { cancelRun } from '../state/runs/end-run.js';
import { findPausableRun, findUnfinishedRun } from '../state/runs/read-runs.js';
import { setPaused } from '../state/runs/advance-run.js';
import { countRepairable } from '../state/drift.js';
import { approve, requireStarted, type ApproveDeps } from '../sync/operator/approve.js';
import { startRepairRun } from '../sync/verify/verify.js';

export interface ActionDeps {
  state: () => Promise<State>;
  timeZone: () => Promise<string>;
  configuration: () => Promise<ApproveDeps['configuration']>;
  mirror: () => Promise<ApproveDeps['mirror']>;
  /** Opens the queue when the first action adds a job. */
  producer: () => Promise<{
    enqueueRun(runId: number, lane: string): Promise<void>;
    requeue(): Promise<unknown>;
  }>;
  log: Logger;
}

/** An action with the object that the address names, and with what the action needs. */
interface Requested extends Omit<ActionDeps, 'state'> {
  state: State;
  /** Number of the run in the path of the address. 0 if the action is not about a run. */
  run: number;
  /** Query of the address, which names the object of the action. */
  query: Readonly<Partial<Record<string, string>>>;
}

interface Confirmed extends Requested {
  actor: Actor;
  /** Number that the confirmation page showed. 0 if the form does not contain it, NaN if it is not a number. */
  shown: number;
}

interface Question extends Pick<Document, 'title' | 'lead'> {
  points?: readonly Point[];
  button: string;
}

export interface Action {
  /** Returns how many records the action affects. The action is refused if they are more than were shown. */
  count?: (request: Requested) => Promise<number>;
  /** Returns the confirmation question. If undefined, the action is performed without a question. */
  ask?: (request: Requested, count: number) => Promise<Question>;
  /** Address to which the operator is redirected afterwards. `:run` is replaced by the number of the run. */
  back: string;
  /** Performs the action and describes the result in sentences. Throws UsageError if nothing was done. */
  act: (request: Confirmed) => Promise<string>;
}

/** Throws UsageError if the text from an address is no number of a run. */
export function parseRun(text: string): number {
  const id = Number(text);
  if (Number.isSafeInteger(id) && id > 0) return id;
  throw new UsageError('a run is a whole number');
}

/** Throws UsageError if more records are affected now than the operator saw. */
export function requireShown(shown: number, count: number): void {
  if (!(count <= shown))
    throw new UsageError(
      `there are ${formatNumber(count)} records now, not ${formatNumber(shown)}, so nothing was done. Open the page again and check`,
    );
}

const choiceOf = ({ query: { stream, operation, gate } }: Requested) => ({ stream, operation, gate });
const chooseGatesOf = (request: Requested) => chooseGates(request.state.db, request.run, choiceOf(request));

const answerGates = (verb: 'Approve' | 'Reject', says: string, act: Action['act']): Action => ({
  count: async (request) => sum((await chooseGatesOf(request)).map(({ count }) => count)),
  async ask(request) {
    const gates = await chooseGatesOf(request);
    const what = gates.map(describeHeld).join(', ');
    return {
      title: `${verb} ${what}?`,
      lead: [says, `Held in run ${request.run}:`],
      points: gates.map(gateToQuestion),
      button: `${verb} ${what}`,
    };
  },
  back: '/',
  act,
});

const causeOf = ({ query: { stream = '', status, code } }: Requested) => {
  if (status !== 'dead' && status !== 'failed')
    throw new UsageError('only given up (dead) and failed records are retried');
  return { stream, status, code } as const;
};

const countObjects = ({ state, query: { stream = '' } }: Requested) => countRepairable(state.db, stream);

export const ACTIONS: Readonly<Record<string, Action>> = {
  '/runs/:run/approve': answerGates(
    'Approve',
    'This queues a sync of the whole stream, which may send up to the number shown. If more records are due by then, nothing is sent and all are held again.',
    async (request) => {
      const { state, producer, actor, shown, run: runId } = request;
      const [configuration, mirror] = [await request.configuration(), await request.mirror()];
      const deps = { configuration, mirror, state, requireQueue: producer, actor };
      const approved = await approve(deps, { ...choiceOf(request), runId, shown });
      requireStarted(approved);
      const { run, approvals } = approved;
      await (await producer()).enqueueRun(run.id, run.lane);
      const zone = await request.timeZone();
      return `${approvals.map((approval) => describeApproval(approval, zone)).join(' ')} Run ${run.id} is queued. ${await describeWorkers(state)}`;
    },
  ),

  '/runs/:run/reject': answerGates(
    'Reject',
    'None of these records is sent. The gate stays closed and causes no alert until its records change.',
    async (request) => {
      const { state, run, actor } = request;
      const gates = await rejectGates(state.db, run, choiceOf(request), actor);
      return `Rejected: ${gates.map(describeHeld).join(', ')}, held in run ${run}.`;
    },
  ),

  '/runs/:run/pause': {
    back: '/runs/:run',
    async act({ state: { db }, run, actor }) {
      const { id } = await findPausableRun(db, run);
      const paused = await actAs(db, actor, 'pause', (tx) => setPaused(tx, true, id), toRuns);
      return paused.length > 0
        ? `Run ${id} is paused: requests in progress are answered.`
        : `Run ${id} is already paused.`;
    },
  },

  '/runs/:run/resume': {
    back: '/runs/:run',
    async act({ state, run, actor, producer }) {
      const { id } = await findUnfinishedRun(state.db, run);
      const { requeue } = await producer();
      const resumed = await actAs(state.db, actor, 'resume', (tx) => setPaused(tx, false, id), toRuns);
      if (resumed.length === 0) return `Run ${id} is not paused.`;
      await requeue();
      return `Run ${id} continues. ${await describeWorkers(state)}`;
    },
  },

  '/runs/:run/cancel': {
    async ask({ state: { db }, run }) {
      const { id } = await findUnfinishedRun(db, run);
      return {
        title: `Cancel run ${id}?`,
        lead: [
          'Requests in progress are answered, and what was accepted stays at the service. Its other records are sent by the next run.',
        ],
        button: `Cancel run ${id}`,
      };
    },
    back: '/runs/:run',
    async act({ state: { db }, run, actor }) {
      const { id } = await findUnfinishedRun(db, run);
      const end = (tx: Queries) => cancelRun(tx, id);
      await actAs(db, actor, 'cancel', end, () => toRuns([id]));
      return `Run ${id} is cancelled.`;
    },
  },

  '/failures/retry': {
    async count(request) {
      const wanted = causeOf(request);
      const causes = await listCauses(request.state.db, wanted);
      const same = causes.find(
        ({ stream, status, code }) =>
          stream === wanted.stream && status === wanted.status && code === (wanted.code ?? null),
      );
      return same?.records ?? 0;
    },
    async ask(request, count) {
      const { stream, status, code } = causeOf(request);
      return {
        title: `Retry ${plural(count, 'record')} of ${stream}?`,
        lead: [
          text`They are ${statusInWords(status)}${code !== undefined && text` with ${{ code }}`}. A worker sends them again, although their rows did not change. Records that wait for them follow automatically.`,
        ],
        button: `Retry ${plural(count, 'record')}`,
      };
    },
    back: '/failures',
    async act(request) {
      const { state, actor } = request;
      const cause = causeOf(request);
      const send = (tx: Queries) => retryRecords(tx, { ...cause, keys: [] });
      const retried = await actAs(state.db, actor, 'retry', send, toRecords);
      if (retried.length === 0)
        throw new UsageError('none of these records is given up or failed any longer, so nothing was done');
      const keys = retried.map(({ localKey }) => localKey);
      await addChanges(state.db, cause.stream, keys);
      return `${plural(retried.length, 'record')} of ${cause.stream} put into the inbox. ${await describeWorkers(state)}`;
    },
  },

  '/drift/repair': {
    count: countObjects,
    ask: async ({ query: { stream = '' } }, count) => ({
      title: `Repair ${plural(count, 'object')} of ${stream}?`,
      lead: [
        text`A run reads each object again and sends those that still differ, within ${{ code: 'limits.repair' }}. More are held for approval.`,
      ],
      button: `Repair ${plural(count, 'object')}`,
    }),
    back: '/drift',
    async act(request) {
      const { state, actor, query } = request;
      const { stream = '' } = query;
      if ((await countObjects(request)) === 0)
        throw new UsageError(`no object of ${stream} has drift that a repair corrects`);
      const { enqueueRun } = await request.producer();
      const { fingerprints } = await request.configuration();
      const run = await startRepairRun(state.db, { streams: [stream], startedBy: 'command', fingerprints });
      if (!run) throw new UsageError(`a run of ${stream} is unfinished, so nothing was queued`);
      await noteAction(state.db, actor, 'repair', { runId: run.id, subject: stream });
      await enqueueRun(run.id, run.lane);
      return `Run ${run.id} is queued. ${await describeWorkers(state)}`;
    },
  },
};

/** Returns a warning if no live process works on what was queued, otherwise an empty text. */
async function describeWorkers({ db }: State): Promise<string> {
  const isAtWork = (await listProcesses(db)).some(({ isAlive }) => isAlive);
  return isAtWork ? '' : 'No process is running: start slotsync worker.';
}
