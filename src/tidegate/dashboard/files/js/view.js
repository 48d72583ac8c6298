// What every page is written with: templates, and state that lives as long as what it belongs to.

import htm from "../vendor/htm.js";
import { h } from "../vendor/preact.js";

export { render } from "../vendor/preact.js";
export { useCallback, useEffect, useErrorBoundary, useId } from "../vendor/hooks.js";
export { useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";

/** A template: html`<p class=${name}>${text}</p>`. What is put in is text, never markup. */
export const html = htm.bind(h);
