// Every client of PostgreSQL is opened here, so that each is named at the server, connects in a bounded time, and uses
// the same reading of the address, whichever driver it is.
import postgres from 'postgres';
import { parsePostgresAddress, type PostgresAddress } from './postgres-address.js';
import { currentText, type SettingText } from './setting-text.js';

/** How long a connection may take, from the first packet to the server's readiness. */
export const CONNECT_WITHIN_MS = 10_000;

/**
 * Opens a client of postgres.js with one connection, unless `options` say otherwise. `duty` is what the server lists it
 * by. Nothing connects before the first query. Throws UsageError when the address cannot be used.
 */
export function connectPostgres<T extends Record<string, postgres.PostgresType> = {}>(
  address: SettingText,
  duty: string,
  options: postgres.Options<T> = {},
) {
  const { tls, user, host, port, database } = parsePostgresAddress(currentText(address));
  const { connection, ...others } = options;
  return postgres<T>({
    host,
    port,
    database,
    user,
    ...passwordOf(address),
    ssl: tls,
    max: 1,
    connect_timeout: CONNECT_WITHIN_MS / 1000,
    onnotice: () => undefined,
    connection: { application_name: nameOf(duty), ...connection },
    ...others,
  } as postgres.Options<T>);
}

/** The same for pg, as the configuration of a client or a pool. Throws UsageError when the address cannot be used. */
export function pgConfig(address: SettingText, duty: string) {
  const { tls, user, host, port, database } = parsePostgresAddress(currentText(address));
  return {
    host,
    port,
    database,
    user,
    ...passwordOf(address),
    ssl: tls,
    application_name: nameOf(duty),
    connectionTimeoutMillis: CONNECT_WITHIN_MS,
  };
}

const nameOf = (duty: string) => `slotsync ${duty}`;

/** Asked for by each new connection, so that a password that was replaced in its file is used by the next one. */
function passwordOf(address: SettingText): { password?: () => string } {
  const read = (): PostgresAddress['password'] => parsePostgresAddress(currentText(address)).password;
  // Without one, both drivers look at PGPASSWORD.
  return read() === undefined ? {} : { password: () => read() ?? '' };
}
