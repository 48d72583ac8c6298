// What was typed into a dialog, as the API wants it. A form knows texts only.

/** Without what was left empty. */
export const given = (fields) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => ![undefined, null, ""].includes(value)));

/** "12" → 12; null where nothing was typed. */
export const toNumber = (text) => (text === "" || text === undefined ? null : Number(text));

/** What a field of the kind datetime-local holds → the moment with its zone; null where nothing was typed. */
export const toMoment = (text) => (text ? new Date(text).toISOString() : null);

/** A time as such a field shows it, in the reader's time zone. */
export function fromMoment(at) {
  if (!at) return "";
  const moment = new Date(at);
  return new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** What stands on several lines, or between commas, without what is empty; each once. */
export const toList = (text) => [...new Set((text ?? "").split(/[\n,]/).map((one) => one.trim()).filter(Boolean))];

/** What differs between a form and what there was, so that nothing else is changed. */
export const changed = (now, before) =>
  Object.fromEntries(Object.entries(now).filter(([name, value]) => value !== before[name]));
