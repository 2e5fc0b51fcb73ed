// Assembles the dependencies of the use cases that commands and workers run.
import type { AlertDeps } from '../alerts/send-alerts.js';
import type { LoadedConfiguration } from '../config/config-file.js';
import type { Settings } from '../config/settings.js';
import type { Destination } from '../destination/destination.js';
import type { Mirror } from '../mirror/mirror.js';
import type { Logger } from '../process/logger.js';
import type { Meter } from '../process/meter.js';
import type { State } from '../state/database.js';
import type { StartedBy } from '../state/schema.js';
import type { ReconcileDeps } from '../sync/reconcile/reconcile.js';
import type { SyncDeps } from '../sync/run/sync-deps.js';
import type { VerifyDeps } from '../sync/verify/verify.js';
import type { AppState } from './app-state.js';

interface UseCasesOptions extends Pick<AppState, 'state' | 'recognized'> {
  settings: Settings;
  log: Logger;
  configuration: () => Promise<LoadedConfiguration>;
  streams: () => Promise<SyncDeps['streams']>;
  timeZone: () => Promise<string>;
  mirror: () => Promise<Mirror>;
  destination: () => Promise<Destination & { patient: Destination }>;
  meter: () => Promise<Meter>;
}

export function createUseCases(options: UseCasesOptions) {
  const { settings, log, configuration, streams, timeZone, mirror, destination, meter, state, recognized } =
    options;

  /** Returns the dependencies of the use cases. The state must be bound to the destination, or confirmed to be. */
  const syncing = async (opened: State) => ({
    mirror: await mirror(),
    destination: await destination(),
    state: opened,
    streams: await streams(),
    meter: await meter(),
    history: (await configuration()).history,
    historyDays: (await configuration()).historyDays,
    timeZone,
    log,
  });

  /** Creates the channels of alerts. Throws UsageError if a channel cannot be used. */
  const alertChannels = async () => {
    const { createChannels } = await import('../alerts/channels.js');
    const { alerts: rules, report, streams: declared } = await configuration();
    return createChannels(
      { ...settings.alerts, proxy: settings.proxy },
      {
        mail: rules.mail,
        report,
        readReport: async (runId) => {
          const { readReport } = await import('../situation/report.js');
          const { readRun } = await import('../state/runs/read-runs.js');
          const { db } = await state();
          const { requestsPerSecond } = settings;
          const deps = { requestsPerSecond, streams: declared.map(({ name }) => name) };
          return readReport(db, { nightly: await readRun(db, runId) }, deps);
        },
        timeZone,
      },
    );
  };

  return {
    syncing,
    alertChannels,

    /** Returns the dependencies of alerts. Throws UsageError if a channel cannot be used. */
    async alerting(): Promise<AlertDeps> {
      const channels = await alertChannels();
      const { alerts: rules, report } = await configuration();
      const names = [...(await streams()).keys()];
      return {
        state: await state(),
        log,
        channels,
        rules,
        report,
        streams: names,
        timeZone: await timeZone(),
      };
    },

    /** Returns the dependencies of a verify. Binds a new state to the destination. */
    async verifying(startedBy: StartedBy): Promise<VerifyDeps> {
      const { createPace } = await import('../sync/run/request-pace.js');
      const { DEFAULT_VERIFY_SHARE } = await import('../streams/config-schema.js');
      const { share = DEFAULT_VERIFY_SHARE } = (await configuration()).verify ?? {};
      const pace = createPace({ requestsPerSecond: settings.requestsPerSecond, share });
      const { patient } = await destination();
      return { ...(await syncing((await recognized()).state)), destination: patient, startedBy, pace };
    },

    /** Returns the dependencies of a reconcile. Binds a new state to the destination. */
    async reconciling(startedBy: StartedBy): Promise<ReconcileDeps> {
      const { NO_RESERVATIONS } = await import('../streams/bookings.js');
      const { reservations = NO_RESERVATIONS } = await configuration();
      const { patient } = await destination();
      return {
        ...(await syncing((await recognized()).state)),
        destination: patient,
        reservations,
        startedBy,
      };
    },
  };
}
