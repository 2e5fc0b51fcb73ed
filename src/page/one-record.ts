// Page of one record or booking as the state knows it. On request, also the row in the mirror and the object at the
// service. Reading both costs requests of the quota, so only a signed-in operator can do so, and only pages of that
// session show the result.
import { bookingDocument } from '../documents/bookings.js';
import { section, text, type Action, type Document, type Section } from '../documents/document.js';
import { recordDocument } from '../documents/record.js';
import { UsageError } from '../errors/errors.js';
import type { Mirror } from '../mirror/mirror.js';
import { readChainOf, readHoldingGate } from '../situation/chains.js';
import { commandFor } from '../situation/commands.js';
import { readBooking, readBookingEvents } from '../state/bookings/read-reservations.js';
import { readKnown } from '../state/records/read/record-details.js';
import { NO_RESERVATIONS } from '../streams/bookings.js';
import { BOOKINGS } from '../streams/config-schema.js';
import {
  explainBooking,
  explainRecord,
  type BookingExplained,
  type ExplainDeps,
  type RecordExplained,
} from '../sync/operator/explain.js';
import type { SyncDeps } from '../sync/run/sync-deps.js';
import type { ActionDeps } from './actions.js';
import { PageNotFound, type Page, type Session, type View } from './html-page.js';

/** Maximum number of batches and writes of a record, and of events of a booking. */
const MOST_OF_ONE = 20;

type Params = Readonly<Record<string, string>>;

const recordPage: Page = async (sources, { params, address }, view) => {
  const { stream = '', key = '' } = params;
  const known = await sources.read(address, async (db) => {
    const found = await readKnown(db, stream, key, MOST_OF_ONE);
    const held = await readHoldingGate(db, { stream, localKey: key });
    return { ...found, held, chain: await readChainOf(db, found.record) };
  });
  const { record, link, drift, held, exception, batches, waiting, writes } = known;
  const listed = batches.length + waiting.length + writes.length;
  if (!record && !link && !drift && !held && !exception && listed === 0)
    throw new PageNotFound(`The state has no record '${key}' of ${stream}.`);
  const named = { stream, key, address, about: `${stream} ${key}` };
  return withSides(named, view, (sides) => recordDocument(known, sides as RecordExplained | undefined));
};

const bookingPage: Page = async (sources, { params, address }, view) => {
  const { key = '' } = params;
  const known = await sources.read(address, async (db) => ({
    key,
    known: await readBooking(db, key),
    events: await readBookingEvents(db, key, MOST_OF_ONE),
  }));
  if (!known.known && known.events.length === 0) throw new PageNotFound(`The state has no booking '${key}'.`);
  const named = { stream: BOOKINGS, key, address, about: `booking ${key}` };
  return withSides(named, view, (sides) =>
    bookingDocument(known, view.timeZone, sides as BookingExplained | undefined),
  );
};

/** `toDocument` gets the row and object as the operator read them for this page, or undefined if not read yet. */
function withSides(
  { stream, key, address, about }: Record<'stream' | 'key' | 'address' | 'about', string>,
  view: View,
  toDocument: (sides: unknown) => Document,
): Document {
  const { shown } = view.session ?? {};
  const read = shown?.address === address ? shown : undefined;
  const document = toDocument(read?.explained);
  const action = {
    command: commandFor('slotsync explain', stream, key),
    href: address,
    label: read ? 'Read again' : 'Read mirror and service',
    about,
    isImmediate: true,
  };
  return { ...document, sections: [...document.sections, sidesSection(action, read?.at, view)] };
}

/** Section with a button to read row and object. Before sign-in: a link to sign in, or the command to run. */
function sidesSection(action: Action, readAt: Date | undefined, { session, canSignIn }: View): Section {
  const signIn = canSignIn
    ? text`${{ text: 'Sign in', href: '/sign-in' }} to read mirror and service.`
    : text`To see mirror and service as they are now: ${{ command: action.command }}`;
  const read = readAt
    ? text`Mirror and service were read at ${readAt}.`
    : 'This reads the row, and sends a few requests to the service.';
  return section('sides', 'Mirror and service', {
    paragraphs: [!session && signIn],
    points: [session && { text: read, commands: [action] }],
  });
}

export interface SidesDeps extends Pick<ActionDeps, 'state' | 'configuration'> {
  openMirror: () => Promise<Mirror>;
  destination: () => Promise<SyncDeps['destination']>;
}

type Configuration = Awaited<ReturnType<ActionDeps['configuration']>>;

type Explain = (deps: ExplainDeps) => Promise<unknown>;

interface RecordPage {
  page: Page;
  sidesOf: (configuration: Configuration, params: Params) => { stream: string; explain: Explain };
}

export const RECORD_PAGES: Readonly<Record<string, RecordPage>> = {
  '/records/:stream/:key': {
    page: recordPage,
    sidesOf({ streams }, { stream = '', key = '' }) {
      const declared = streams.find(({ name }) => name === stream);
      if (!declared) throw new UsageError(`no stream '${stream}' is in the configuration`);
      return { stream, explain: (deps) => explainRecord(deps, declared, key) };
    },
  },
  '/bookings/:key': {
    page: bookingPage,
    sidesOf: ({ reservations = NO_RESERVATIONS }, { key = '' }) => ({
      stream: BOOKINGS,
      explain: (deps) => explainBooking(deps, reservations, key),
    }),
  },
};

/**
 * Reads row and object for the page at `address`, and keeps both in the session. Aborted if the user leaves the page.
 */
export async function readSides(
  { state, openMirror, destination }: SidesDeps,
  explain: Explain,
  { address, session }: { address: string; session: Session },
  signal: AbortSignal,
): Promise<void> {
  // Opens a separate connection to the mirror, so that its statement can be ended when the user leaves.
  const mirror = await openMirror();
  signal.addEventListener('abort', () => void mirror.close());
  try {
    const sides = { mirror, destination: await destination(), state: await state(), signal };
    session.shown = { address, explained: await explain(sides), at: new Date() };
  } finally {
    await mirror.close();
  }
}
