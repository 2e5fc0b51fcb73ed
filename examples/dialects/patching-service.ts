// A dialect for a service that keeps what is not sent: only the fields of the mapping are, and an object is not read before it
// is updated. `slotsync sandbox` plays this endpoint too.
import { defineDialect } from 'slotsync';

export default defineDialect((base) => ({
  write: {
    method: 'POST',
    path: '/objects/upsert',
    body: (objects) => ({ ...(base.write.body(objects) as object), importMode: 'PATCH' }),
    patches: true,
  },
}));
