// The parts of a page, and for whom it is rendered.
import type { Html } from '../text/html.js';
import type { Session } from './sessions.js';
import type { Sources } from './sources.js';

export interface View {
  now: Date;
  timeZone: string;
  /** The session of somebody who signed in, and may act. */
  session: Session | undefined;
  /** There is a token to sign in with. */
  canSignIn: boolean;
}

/** A part of a page that is brought up to date on its own. */
export interface Section {
  /** Its id in the page. */
  id: string;
  title: string;
  body: Html;
  /** The number of concerns for a person. */
  isUrgent?: boolean | undefined;
  /** It stays in the page, so that it can appear. */
  isEmpty?: boolean | undefined;
}

export interface Rendered {
  title: string;
  /** In the frame above the sections. */
  lead?: Html;
  sections: readonly Section[];
}

export interface PageRequest {
  params: Readonly<Record<string, string>>;
  query: URLSearchParams;
  /** Path and query: names the page among readings that are kept. */
  address: string;
}

/** Reads what a page shows, and returns what renders it. Throws PageNotFound. */
export type Page = (sources: Sources, request: PageRequest) => Promise<(view: View) => Rendered>;

/** There is no page of this name: a run, a record that is not there. */
export class PageNotFound extends Error {}
