// Document and section that list the actions of operators, such as approvals and retries.
import type { NotedAction } from '../state/actions.js';
import type { OperatorAction } from '../state/schema.js';
import { linkToRun, section, text, type Document, type Point, type Section } from './document.js';

const VERBS: Record<OperatorAction, string> = {
  approve: 'approved',
  reject: 'rejected',
  pause: 'paused',
  resume: 'resumed',
  cancel: 'cancelled',
  retry: 'retried',
  rename: 'renamed',
  link: 'linked',
  unlink: 'undid the link of',
  forget: 'deleted a key of',
  repair: 'repaired',
  freeze: 'froze',
  unfreeze: 'ended the freeze of',
  triggers: 'changed triggers:',
  rename_stream: 'renamed the stream',
  take: 'let the mirror win for',
  except: 'made exceptions of',
  except_end: 'ended the exceptions of',
  probe: 'tested writing with',
};

export function actionsDocument(actions: readonly NotedAction[]): Document {
  return {
    title: 'Actions',
    lead: actions.length === 0 ? ['No actions are recorded.'] : [],
    sections: [actionsSection(actions)],
  };
}

export function actionsSection(actions: readonly NotedAction[]): Section {
  return section('actions', 'What operators did', { points: actions.map(toPoint) });
}

function toPoint({ at, by, via, action, subject, runId, reason }: NotedAction): Point {
  const who = by ?? 'somebody';
  const run = runId !== null && text`${subject === null ? ' ' : ', '}${linkToRun(runId)}`;
  return {
    text: text`${at}: ${who}${via === 'page' && ' (page)'} ${VERBS[action]}${subject !== null && ` ${subject}`}${run}`,
    details: reason === null ? [] : [`Reason: ${reason}`],
  };
}
