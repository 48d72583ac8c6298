// Converts the values of form fields, which are texts, to the types of the API.

/** The fields that are not empty. */
export const given = (fields) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => ![undefined, null, ""].includes(value)));

/** "12" → 12; null for an empty field. */
export const toNumber = (text) => (text === "" || text === undefined ? null : Number(text));

/** The value of a datetime-local field → time with zone; null for an empty field. */
export const toMoment = (text) => (text ? new Date(text).toISOString() : null);

/** A time as the value of such a field, in the browser's time zone. */
export function fromMoment(at) {
  if (!at) return "";
  const moment = new Date(at);
  return new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** The distinct entries of a text, separated by lines or commas, without empty ones. */
export const toList = (text) => [...new Set((text ?? "").split(/[\n,]/).map((one) => one.trim()).filter(Boolean))];

/** The fields that differ from the previous values, so that nothing else is changed. */
export const changed = (now, before) =>
  Object.fromEntries(Object.entries(now).filter(([name, value]) => value !== before[name]));
