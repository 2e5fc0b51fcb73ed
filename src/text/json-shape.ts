// Computes the shape of JSON: its keys and types without its values. All elements of a list share one shape.

interface Shape {
  /** Number of values from which the shape was made. */
  count: number;
  /** Types of the values: `text`, `number`, `boolean`, `null`, `list` and `object`. Several if the values differ. */
  types: ReadonlySet<string>;
  /** Shape of the elements of all lists. Undefined if every list is empty. */
  element?: Shape | undefined;
  /** Shapes of the objects' properties, in the order of their first occurrence. */
  keys?: ReadonlyMap<string, Shape> | undefined;
}

const MOST_KEYS = 200;

export function shapeOf(value: unknown): Shape {
  if (Array.isArray(value))
    return { count: 1, types: new Set(['list']), element: mergeAll(value.map(shapeOf)) };
  if (value === null) return { count: 1, types: new Set(['null']) };
  if (typeof value !== 'object')
    return { count: 1, types: new Set([typeof value === 'string' ? 'text' : typeof value]) };
  const keys = Object.entries(value)
    .slice(0, MOST_KEYS)
    .map(([key, of]) => [key, shapeOf(of)] as const);
  return { count: 1, types: new Set(['object']), keys: new Map(keys) };
}

const mergeAll = ([first, ...others]: readonly Shape[]) =>
  others.reduce<Shape | undefined>((all, one) => all && merge(all, one), first);

function merge(a: Shape, b: Shape): Shape {
  const names = new Set([...(a.keys?.keys() ?? []), ...(b.keys?.keys() ?? [])]);
  const either = (one: Shape | undefined, other: Shape | undefined) =>
    one && other ? merge(one, other) : (one ?? other);
  const keys = [...names].flatMap((name) => {
    const shape = either(a.keys?.get(name), b.keys?.get(name));
    return shape ? [[name, shape] as const] : [];
  });
  return {
    count: a.count + b.count,
    types: new Set([...a.types, ...b.types]),
    element: either(a.element, b.element),
    ...((a.keys ?? b.keys) && { keys: new Map(keys) }),
  };
}

const isOptional = (name: string, { keys, count }: Shape) => (keys?.get(name)?.count ?? 0) < count;

/** Returns, for example, `{ id: number, extId?: text | null, fields: [{ … }] }`. `?` marks a key that not all have. */
export function describeShape(shape: Shape): string {
  const each = [...shape.types].map((type) => {
    if (type === 'list') return shape.element ? `[${describeShape(shape.element)}]` : '[]';
    if (type !== 'object') return type;
    const keys = [...(shape.keys ?? [])].map(
      ([name, of]) => `${name}${isOptional(name, shape) ? '?' : ''}: ${describeShape(of)}`,
    );
    return keys.length === 0 ? '{}' : `{ ${keys.join(', ')} }`;
  });
  return each.join(' | ');
}

/** Yields each change between two shapes, with its place. Parts without values in one shape are not compared. */
export function* compareShapes(was: Shape, is: Shape, place = ''): Generator<string> {
  const types = [...is.types].filter((type) => !was.types.has(type));
  const also = types.length < is.types.size ? 'is also' : 'is';
  if (types.length > 0)
    yield `${place || 'the body'}: was ${[...was.types].join(' or ')}, ${also} ${types.join(' or ')}`;
  if (was.element && is.element) yield* compareShapes(was.element, is.element, `${place}[]`);
  if (!was.keys || !is.keys) return;
  const prefix = place === '' ? '' : `${place}.`;
  for (const [name, shape] of was.keys) {
    const now = is.keys.get(name);
    if (now) yield* compareShapes(shape, now, `${prefix}${name}`);
    else if (!isOptional(name, was)) yield `${prefix}${name}: is gone`;
  }
  for (const name of is.keys.keys()) if (!was.keys.has(name)) yield `${prefix}${name}: is new`;
}
