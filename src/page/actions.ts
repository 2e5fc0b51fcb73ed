// Actions on the operator's page, which call the functions of the commands. An action first asks for confirmation and
// shows the number of affected records. It is refused if that number has grown meanwhile.
import { UsageError } from '../errors/errors.js';
import { formatNumber, plural } from '../text/format.js';
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
import { approve as approveGates, requireStarted, type ApproveDeps } from '../sync/operator/approve.js';
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

interface ActionRequest {
  params: Readonly<Record<string, string>>;
  /** Query of the address, which names the object of the action. */
  query: URLSearchParams;
}

interface AskedAction extends ActionRequest {
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
  count?: (deps: ActionDeps, request: ActionRequest) => Promise<number>;
  /** Returns the confirmation question. If undefined, the action is performed without a question. */
  ask?: (deps: ActionDeps, request: ActionRequest, count: number) => Promise<Question>;
  /** Returns the address to which the operator is redirected afterwards. */
  back: (request: ActionRequest) => string;
  /** Performs the action and describes the result in sentences. Throws UsageError if nothing was done. */
  act: (deps: ActionDeps, request: AskedAction) => Promise<string>;
}

const runOf = ({ params }: ActionRequest): number => {
  const id = Number(params['run']);
  if (Number.isSafeInteger(id) && id > 0) return id;
  throw new UsageError('a run is a whole number');
};
const choiceOf = ({ query }: ActionRequest) => ({
  stream: query.get('stream') ?? undefined,
  operation: query.get('operation') ?? undefined,
  gate: query.get('gate') ?? undefined,
});
const toRun = (request: ActionRequest) => `/runs/${runOf(request)}`;
const toNow = () => '/';

const chooseGatesOf = async ({ state }: ActionDeps, request: ActionRequest) =>
  chooseGates((await state()).db, runOf(request), choiceOf(request));

const countOfGates = async (deps: ActionDeps, request: ActionRequest) =>
  (await chooseGatesOf(deps, request)).reduce((sum, { count }) => sum + count, 0);

const askAboutGates =
  (verb: 'Approve' | 'Reject', says: string): NonNullable<Action['ask']> =>
  async (deps, request) => {
    const gates = await chooseGatesOf(deps, request);
    const what = gates.map(describeHeld).join(', ');
    return {
      title: `${verb} ${what}?`,
      lead: [says, `Held in run ${runOf(request)}:`],
      points: gates.map(gateToQuestion),
      button: `${verb} ${what}`,
    };
  };

const APPROVAL =
  'This queues a sync of the whole stream, which may send up to the number shown. If more records are due by then, nothing is sent and all are held again.';
const REJECTION =
  'None of these records is sent. The gate stays closed and causes no alert until its records change.';

const approve: Action = {
  count: countOfGates,
  ask: askAboutGates('Approve', APPROVAL),
  back: toNow,
  async act(deps, request) {
    const { state, configuration, mirror, producer, timeZone } = deps;
    const opened = await state();
    const given = { configuration: await configuration(), mirror: await mirror(), state: opened };
    const choice = { ...choiceOf(request), runId: runOf(request), shown: request.shown };
    const { actor } = request;
    const approved = await approveGates({ ...given, requireQueue: producer, actor }, choice);
    requireStarted(approved);
    const { run, approvals } = approved;
    await (await producer()).enqueueRun(run.id, run.lane);
    const zone = await timeZone();
    return `${approvals.map((approval) => describeApproval(approval, zone)).join(' ')} Run ${run.id} is queued. ${await describeWorkers(opened)}`;
  },
};

const reject: Action = {
  count: countOfGates,
  ask: askAboutGates('Reject', REJECTION),
  back: toNow,
  async act({ state }, request) {
    const { db } = await state();
    const run = runOf(request);
    const gates = await rejectGates(db, run, choiceOf(request), request.actor);
    return `Rejected: ${gates.map(describeHeld).join(', ')}, held in run ${run}.`;
  },
};

const pause: Action = {
  back: toRun,
  async act({ state }, request) {
    const { db } = await state();
    const { id } = await findPausableRun(db, runOf(request));
    const paused = await actAs(db, request.actor, 'pause', (tx) => setPaused(tx, true, id), toRuns);
    return paused.length > 0
      ? `Run ${id} is paused: requests in progress are answered.`
      : `Run ${id} is already paused.`;
  },
};

const resume: Action = {
  back: toRun,
  async act({ state, producer }, request) {
    const opened = await state();
    const { id } = await findUnfinishedRun(opened.db, runOf(request));
    const { requeue } = await producer();
    const release = (tx: Queries) => setPaused(tx, false, id);
    const resumed = await actAs(opened.db, request.actor, 'resume', release, toRuns);
    if (resumed.length === 0) return `Run ${id} is not paused.`;
    await requeue();
    return `Run ${id} continues. ${await describeWorkers(opened)}`;
  },
};

const cancel: Action = {
  async ask({ state }, request) {
    const run = await findUnfinishedRun((await state()).db, runOf(request));
    return {
      title: `Cancel run ${run.id}?`,
      lead: [
        'Requests in progress are answered, and what was accepted stays at the service. Its other records are sent by the next run.',
      ],
      button: `Cancel run ${run.id}`,
    };
  },
  back: toRun,
  async act({ state }, request) {
    const { db } = await state();
    const { id } = await findUnfinishedRun(db, runOf(request));
    const end = (tx: Queries) => cancelRun(tx, id);
    await actAs(db, request.actor, 'cancel', end, () => toRuns([id]));
    return `Run ${id} is cancelled.`;
  },
};

const causeOf = ({ query }: ActionRequest) => {
  const [stream, status] = [query.get('stream') ?? '', query.get('status')];
  if (status !== 'dead' && status !== 'failed')
    throw new UsageError('only given up (dead) and failed records are retried');
  return { stream, status, code: query.get('code') ?? undefined } as const;
};

/** Throws UsageError if more records are affected now than the operator saw. */
export function requireShown(shown: number, count: number): void {
  if (!(count <= shown))
    throw new UsageError(
      `there are ${formatNumber(count)} records now, not ${formatNumber(shown)}, so nothing was done. Open the page again and check`,
    );
}

const retry: Action = {
  async count({ state }, request) {
    const cause = causeOf(request);
    const causes = await listCauses((await state()).db, cause);
    const same = causes.find(
      ({ stream, status, code }) =>
        stream === cause.stream && status === cause.status && code === (cause.code ?? null),
    );
    return same?.records ?? 0;
  },
  async ask(_, request, count) {
    const cause = causeOf(request);
    return {
      title: `Retry ${plural(count, 'record')} of ${cause.stream}?`,
      lead: [
        text`They are ${statusInWords(cause.status)}${cause.code !== undefined && text` with ${{ code: cause.code }}`}. A worker sends them again, although their rows did not change. Records that wait for them follow automatically.`,
      ],
      button: `Retry ${plural(count, 'record')}`,
    };
  },
  back: () => '/failures',
  async act({ state }, request) {
    const cause = causeOf(request);
    const opened = await state();
    const send = (tx: Queries) => retryRecords(tx, { ...cause, keys: [] });
    const retried = await actAs(opened.db, request.actor, 'retry', send, toRecords);
    if (retried.length === 0)
      throw new UsageError('none of these records is given up or failed any longer, so nothing was done');
    await addChanges(
      opened.db,
      cause.stream,
      retried.map(({ localKey }) => localKey),
    );
    return `${plural(retried.length, 'record')} of ${cause.stream} put into the inbox. ${await describeWorkers(opened)}`;
  },
};

const streamOf = ({ query }: ActionRequest) => query.get('stream') ?? '';

const repair: Action = {
  count: async ({ state }, request) => countRepairable((await state()).db, streamOf(request)),
  async ask(_, request, count) {
    return {
      title: `Repair ${plural(count, 'object')} of ${streamOf(request)}?`,
      lead: [
        text`A run reads each object again and sends those that still differ, within ${{ code: 'limits.repair' }}. More are held for approval.`,
      ],
      button: `Repair ${plural(count, 'object')}`,
    };
  },
  back: () => '/drift',
  async act({ state, configuration, producer }, request) {
    const stream = streamOf(request);
    const opened = await state();
    if ((await countRepairable(opened.db, stream)) === 0)
      throw new UsageError(`no object of ${stream} has drift that a repair corrects`);
    const { enqueueRun } = await producer();
    const { fingerprints } = await configuration();
    const run = await startRepairRun(opened.db, { streams: [stream], startedBy: 'command', fingerprints });
    if (!run) throw new UsageError(`a run of ${stream} is unfinished, so nothing was queued`);
    await noteAction(opened.db, request.actor, 'repair', { runId: run.id, subject: stream });
    await enqueueRun(run.id, run.lane);
    return `Run ${run.id} is queued. ${await describeWorkers(opened)}`;
  },
};

export const ACTIONS: Readonly<Record<string, Action>> = {
  '/runs/:run/approve': approve,
  '/runs/:run/reject': reject,
  '/runs/:run/pause': pause,
  '/runs/:run/resume': resume,
  '/runs/:run/cancel': cancel,
  '/failures/retry': retry,
  '/drift/repair': repair,
};

/** Returns a warning if no live process works on what was queued, otherwise an empty text. */
async function describeWorkers({ db }: State): Promise<string> {
  const isAtWork = (await listProcesses(db)).some(({ isAlive }) => isAlive);
  return isAtWork ? '' : 'No process is running: start slotsync worker.';
}
