// Templates and hooks for all pages.

import htm from "../vendor/htm.js";
import { h } from "../vendor/preact.js";

export { render } from "../vendor/preact.js";
export { useCallback, useEffect, useErrorBoundary, useId } from "../vendor/hooks.js";
export { useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";

/** A template: html`<p class=${name}>${text}</p>`. Values are inserted as text, never as markup. */
export const html = htm.bind(h);
