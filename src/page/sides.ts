// Both sides of one record or booking, as they are now. Reading them costs requests and shows a row: so only who signed in asks
// for it, and it is shown on the next page of that session.
import { addressOfBooking, addressOfRecord, text, type Section } from '../documents/document.js';
import { UsageError } from '../errors/errors.js';
import { NO_RESERVATIONS } from '../streams/bookings.js';
import { BOOKINGS } from '../streams/config-schema.js';
import { explainBooking } from '../sync/operator/explain-booking.js';
import { explainRecord, type ExplainDeps } from '../sync/operator/explain-record.js';
import type { ActionDeps } from './actions.js';
import type { View } from './view.js';

/** A reading of all sides, and its time. */
export interface Shown<T> {
  explained: T;
  at: Date;
}

interface Sides {
  /** The page that shows it. */
  path: string;
  stream: string;
  explain: (deps: ExplainDeps) => Promise<unknown>;
}

type Configuration = Awaited<ReturnType<ActionDeps['configuration']>>;
type Params = Readonly<Record<string, string>>;

/** By path. */
export const SIDES: Readonly<Record<string, (configuration: Configuration, params: Params) => Sides>> = {
  '/records/:stream/:key': ({ streams }, { stream = '', key = '' }) => {
    const declared = streams.find(({ name }) => name === stream);
    if (!declared) throw new UsageError(`no stream '${stream}' is in the configuration`);
    return {
      path: addressOfRecord(stream, key),
      stream,
      explain: (deps) => explainRecord(deps, declared, key),
    };
  },
  '/bookings/:key': ({ reservations = NO_RESERVATIONS }, { key = '' }) => ({
    path: addressOfBooking(key),
    stream: BOOKINGS,
    explain: (deps) => explainBooking(deps, reservations, key),
  }),
};

/** Offers the reading on the page of `path`. `command` shows the same; `about` names the record or booking. */
export function sidesSection(
  { path, command, about }: { path: string; command: string; about: string },
  shown: Shown<unknown> | undefined,
  { session, canSignIn }: View,
): Section {
  const read = {
    command,
    href: path,
    label: shown ? 'Read again' : 'Read mirror and service',
    about,
    isImmediate: true,
  };
  const described = shown
    ? text`Mirror and service were read at ${shown.at}.`
    : 'This reads the row, and asks the service with one or a few requests of the quota.';
  return {
    id: 'sides',
    title: 'Mirror and service',
    paragraphs: session
      ? []
      : [
          canSignIn
            ? text`${{ text: 'Sign in', href: '/sign-in' }} to read mirror and service.`
            : text`For both sides as they are now: ${{ command }}`,
        ],
    points: session ? [{ text: described, commands: [read] }] : [],
  };
}
