/** SHA-256 and HMAC. `crypto.subtle` would answer later only, and is missing on pages without TLS. */

/** The first 32 bits of the fractions of roots of primes. The next bits of none are near 0 or 1, so a float's last bit does no harm. */
function roots(degree: number, count: number): number[] {
  const primes: number[] = [];
  for (let n = 2; primes.length < count; n++) if (primes.every((prime) => n % prime)) primes.push(n);
  return primes.map((prime) => (prime ** (1 / degree) * 2 ** 32) | 0);
}

const K = /* @__PURE__ */ roots(3, 64);
const START = /* @__PURE__ */ roots(2, 8);

export function sha256(message: Uint8Array): Uint8Array {
  const padded = new Uint8Array(((message.length + 8) >> 6) * 64 + 64);
  padded.set(message);
  padded[message.length] = 128;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, BigInt(message.length) * 8n);
  let state = START;
  const w = new Int32Array(64);
  const turn = (x: number, n: number): number => (x >>> n) | (x << (32 - n));
  for (let at = 0; at < padded.length; at += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const a = w[i - 15]!;
      const b = w[i - 2]!;
      w[i] = w[i - 16]! + (turn(a, 7) ^ turn(a, 18) ^ (a >>> 3)) + w[i - 7]! + (turn(b, 17) ^ turn(b, 19) ^ (b >>> 10));
    }
    let words = state;
    for (let i = 0; i < 64; i++) {
      const [a, b, c, d, e, f, g, h] = words as [number, number, number, number, number, number, number, number];
      const one = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + K[i]! + w[i]!;
      const two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      words = [(one + two) | 0, a, b, c, (d + one) | 0, e, f, g];
    }
    state = words.map((word, i) => (word + state[i]!) | 0);
  }
  state.forEach((word, i) => view.setInt32(4 * i, word));
  return padded.slice(0, 32);
}

export function hmac(key: Uint8Array, message: Uint8Array): Uint8Array {
  // Keys of ours have 32 bytes.
  const block = (mask: number, rest: Uint8Array): Uint8Array =>
    sha256(Uint8Array.of(...Array.from({ length: 64 }, (_, i) => (key[i] ?? 0) ^ mask), ...rest));
  return block(0x5c, block(0x36, message));
}
