/** What a page without a bundler loads by `<script>`: `deniable.init`, and `<deniable-receipt>`. */

export { init } from "./index.js";
export { Receipt } from "./receipt.js";
