// Web worker that solves the puzzle of a line: it finds a number so that
//   sha256(`${challenge}:${number}`)
// starts with the required number of zero bits. The browser's SHA-256 exists on secure pages only and is asynchronous
// per hash; the text fits into one block, so the hash is computed here (FIPS 180-4).

const CONSTANTS = new Uint32Array(64);
const INITIAL = new Uint32Array(8);

// The first 32 bits of the fractional parts of the cube roots and square roots of the first primes.
(() => {
  const fraction = (root) => Math.floor((root - Math.floor(root)) * 2 ** 32);
  let found = 0;
  for (let candidate = 2; found < 64; candidate += 1) {
    let isPrime = true;
    for (let factor = 2; factor * factor <= candidate; factor += 1) isPrime &&= candidate % factor !== 0;
    if (!isPrime) continue;
    if (found < 8) INITIAL[found] = fraction(Math.sqrt(candidate));
    CONSTANTS[found] = fraction(Math.cbrt(candidate));
    found += 1;
  }
})();

const words = new Uint32Array(64);
const right = (value, by) => (value >>> by) | (value << (32 - by));

/** The first 32 bits of the SHA-256 of up to 55 bytes. */
function firstWord(bytes, length) {
  words.fill(0);
  for (let at = 0; at < length; at += 1) words[at >> 2] |= bytes[at] << (24 - 8 * (at & 3));
  words[length >> 2] |= 0x80 << (24 - 8 * (length & 3));
  words[15] = 8 * length;
  for (let at = 16; at < 64; at += 1) {
    const early = words[at - 15];
    const late = words[at - 2];
    const low = right(early, 7) ^ right(early, 18) ^ (early >>> 3);
    const high = right(late, 17) ^ right(late, 19) ^ (late >>> 10);
    words[at] = words[at - 16] + low + words[at - 7] + high;
  }
  let [a, b, c, d, e, f, g, h] = INITIAL;
  for (let at = 0; at < 64; at += 1) {
    const choice = (e & f) ^ (~e & g);
    const majority = (a & b) ^ (a & c) ^ (b & c);
    const first = (h + (right(e, 6) ^ right(e, 11) ^ right(e, 25)) + choice + CONSTANTS[at] + words[at]) | 0;
    const second = ((right(a, 2) ^ right(a, 13) ^ right(a, 22)) + majority) | 0;
    h = g; g = f; f = e; e = (d + first) | 0;
    d = c; c = b; b = a; a = (first + second) | 0;
  }
  return (INITIAL[0] + a) >>> 0;
}

export function solve(challenge, bits) {
  const bytes = new Uint8Array(55);
  for (let at = 0; at < challenge.length; at += 1) bytes[at] = challenge.charCodeAt(at);
  bytes[challenge.length] = 58; // a colon
  for (let number = 0; ; number += 1) {
    const digits = String(number);
    let length = challenge.length + 1;
    for (let at = 0; at < digits.length; at += 1) { bytes[length] = digits.charCodeAt(at); length += 1; }
    if (bits === 0 || firstWord(bytes, length) >>> (32 - bits) === 0) return digits;
  }
}

if (typeof document === "undefined" && typeof self !== "undefined") {
  self.onmessage = ({ data }) => self.postMessage(solve(data.challenge, data.bits));
}
