export function importAnew(url: URL): Promise<unknown>;
