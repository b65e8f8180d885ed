// Written by: deniable registry show --typescript registry.toml
// A new browser answers one question at first: it may spend as much as one report of the dearest metric, and earns the rest in 30 days.
export default {
  "format": 1,
  "app": "shop",
  "revision": 0,
  "segments": {},
  "relay": null,
  "budget": {
    "per_month": 1000000000,
    "lifetime": 10000000000
  },
  "metrics": {
    "ui.theme": {
      "off": null,
      "description": "d",
      "version": 1,
      "type": "categorical",
      "values": [
        "light",
        "dark",
        "system"
      ],
      "factors": null,
      "max_length": null,
      "range": null,
      "unit": null,
      "scale": null,
      "steps": null,
      "bins": null,
      "rounded": false,
      "none": null,
      "other": null,
      "period": "day",
      "grace": "48h",
      "delay": null,
      "expires": null,
      "segments": [],
      "sample": "1",
      "epsilon": "1",
      "epsilon_permanent": null,
      "shuffled": null,
      "mechanism": "grr",
      "canonical": "grr 3 5837465777/2147483648 5837465777/10132433073 2147483648/10132433073 1x3 index",
      "fingerprint": "02762783be5599de",
      "layout": {
        "kind": "index",
        "rows": 1,
        "width": 3,
        "row_bytes": 0,
        "payload_bytes": 1
      },
      "constants": {
        "keep": "5837465777/10132433073"
      },
      "allowance": {
        "cost": 1000000,
        "per_period": 1,
        "month": 31000000,
        "lifetime": 310000000,
        "answers": null,
        "answers_ever": null
      }
    },
    "ui.newsletter": {
      "off": null,
      "description": "d",
      "version": 1,
      "type": "boolean",
      "values": [
        false,
        true
      ],
      "factors": null,
      "max_length": null,
      "range": null,
      "unit": null,
      "scale": null,
      "steps": null,
      "bins": null,
      "rounded": false,
      "none": null,
      "other": null,
      "period": "day",
      "grace": "48h",
      "delay": null,
      "expires": null,
      "segments": [],
      "sample": "1",
      "epsilon": "1",
      "epsilon_permanent": null,
      "shuffled": null,
      "mechanism": "binary",
      "canonical": "binary 2 5837465777/2147483648 5837465777/7984949425 2147483648/7984949425 1x2 index",
      "fingerprint": "85f1b11130789607",
      "layout": {
        "kind": "index",
        "rows": 1,
        "width": 2,
        "row_bytes": 0,
        "payload_bytes": 1
      },
      "constants": {
        "keep": "5837465777/7984949425"
      },
      "allowance": {
        "cost": 1000000,
        "per_period": 1,
        "month": 31000000,
        "lifetime": 310000000,
        "answers": null,
        "answers_ever": null
      }
    },
    "search.ms": {
      "off": null,
      "description": "d",
      "version": 1,
      "type": "number",
      "values": null,
      "factors": null,
      "max_length": null,
      "range": [
        "0",
        "1000"
      ],
      "unit": "ms",
      "scale": "linear",
      "steps": 66000,
      "bins": null,
      "rounded": false,
      "none": null,
      "other": null,
      "period": "week",
      "grace": "48h",
      "delay": null,
      "expires": null,
      "segments": [],
      "sample": "1",
      "epsilon": "1",
      "epsilon_permanent": null,
      "shuffled": null,
      "mechanism": "window",
      "canonical": "window 66001 5837465777/2147483648 1 16 1x32 index",
      "fingerprint": "d9d2fdb626fc1b73",
      "layout": {
        "kind": "index",
        "rows": 1,
        "width": 32,
        "row_bytes": 0,
        "payload_bytes": 1
      },
      "constants": {
        "blocks": 1,
        "length": 16,
        "keep": "5837465777/7984949425"
      },
      "allowance": {
        "cost": 1000000,
        "per_period": 1,
        "month": 5000000,
        "lifetime": 50000000,
        "answers": null,
        "answers_ever": null
      }
    },
    "tags": {
      "off": null,
      "description": "d",
      "version": 1,
      "type": "set",
      "values": [
        "a",
        "b"
      ],
      "factors": null,
      "max_length": null,
      "range": null,
      "unit": null,
      "scale": null,
      "steps": null,
      "bins": null,
      "rounded": false,
      "none": null,
      "other": null,
      "period": "week",
      "grace": "48h",
      "delay": null,
      "expires": null,
      "segments": [],
      "sample": "1",
      "epsilon": "1",
      "epsilon_permanent": null,
      "shuffled": null,
      "mechanism": "sampled_options",
      "canonical": "sampled_options 4 5837465777/2147483648 5837465777/7984949425 2147483648/7984949425 2x2 index",
      "fingerprint": "e7584d40d899904a",
      "layout": {
        "kind": "index",
        "rows": 2,
        "width": 2,
        "row_bytes": 0,
        "payload_bytes": 1
      },
      "constants": {
        "keep": "5837465777/7984949425",
        "size": 1
      },
      "allowance": {
        "cost": 1000000,
        "per_period": 1,
        "month": 5000000,
        "lifetime": 50000000,
        "answers": null,
        "answers_ever": null
      }
    },
    "word": {
      "off": null,
      "description": "d",
      "version": 1,
      "type": "string",
      "values": null,
      "factors": null,
      "max_length": 64,
      "range": null,
      "unit": null,
      "scale": null,
      "steps": null,
      "bins": null,
      "rounded": false,
      "none": null,
      "other": null,
      "period": "month",
      "grace": "48h",
      "delay": null,
      "expires": null,
      "segments": [],
      "sample": "1",
      "epsilon": "1",
      "epsilon_permanent": null,
      "shuffled": null,
      "mechanism": "fast_local_hash",
      "canonical": "fast_local_hash 13407807929942597099574024998205846127479365820592393377723561443721764030073546976801874298166903427690031858186486050853753882811946569946433649006084096 5837465777/2147483648 5837465777/12279916721 1/4 16384x4 index",
      "fingerprint": "33a282658d4e995b",
      "layout": {
        "kind": "index",
        "rows": 16384,
        "width": 4,
        "row_bytes": 0,
        "payload_bytes": 2
      },
      "constants": {
        "family": {
          "kind": "pool",
          "rows": 16384,
          "width": 4,
          "label": "fast_local_hash"
        },
        "keep": "5837465777/12279916721"
      },
      "allowance": {
        "cost": 1000000,
        "per_period": 1,
        "month": 1000000,
        "lifetime": 10000000,
        "answers": null,
        "answers_ever": null
      }
    },
    "id": {
      "off": null,
      "description": "d",
      "version": 1,
      "type": "key",
      "values": null,
      "factors": null,
      "max_length": null,
      "range": null,
      "unit": null,
      "scale": null,
      "steps": null,
      "bins": null,
      "rounded": false,
      "none": null,
      "other": null,
      "period": "month",
      "grace": "48h",
      "delay": null,
      "expires": null,
      "segments": [],
      "sample": "1",
      "epsilon": "1",
      "epsilon_permanent": null,
      "shuffled": null,
      "mechanism": "fast_local_hash",
      "canonical": "fast_local_hash 18446744073709551616 5837465777/2147483648 5837465777/12279916721 1/4 16384x4 index",
      "fingerprint": "b16a1b43251e3367",
      "layout": {
        "kind": "index",
        "rows": 16384,
        "width": 4,
        "row_bytes": 0,
        "payload_bytes": 2
      },
      "constants": {
        "family": {
          "kind": "pool",
          "rows": 16384,
          "width": 4,
          "label": "fast_local_hash"
        },
        "keep": "5837465777/12279916721"
      },
      "allowance": {
        "cost": 1000000,
        "per_period": 1,
        "month": 1000000,
        "lifetime": 10000000,
        "answers": null,
        "answers_ever": null
      }
    },
    "often": {
      "off": null,
      "description": "d",
      "version": 1,
      "type": "ordinal",
      "values": [
        "never",
        "sometimes",
        "always"
      ],
      "factors": null,
      "max_length": null,
      "range": null,
      "unit": null,
      "scale": null,
      "steps": null,
      "bins": null,
      "rounded": false,
      "none": "never",
      "other": null,
      "period": "month",
      "grace": "48h",
      "delay": null,
      "expires": null,
      "segments": [],
      "sample": "1",
      "epsilon": "1",
      "epsilon_permanent": null,
      "shuffled": null,
      "mechanism": "grr",
      "canonical": "grr 3 5837465777/2147483648 5837465777/10132433073 2147483648/10132433073 1x3 index",
      "fingerprint": "f2f7b8465baef6dd",
      "layout": {
        "kind": "index",
        "rows": 1,
        "width": 3,
        "row_bytes": 0,
        "payload_bytes": 1
      },
      "constants": {
        "keep": "5837465777/10132433073"
      },
      "allowance": {
        "cost": 1000000,
        "per_period": 1,
        "month": 1000000,
        "lifetime": 10000000,
        "answers": null,
        "answers_ever": null
      }
    },
    "both": {
      "off": null,
      "description": "d",
      "version": 1,
      "type": "product",
      "values": [
        [
          "light",
          "s"
        ],
        [
          "light",
          "m"
        ],
        [
          "dark",
          "s"
        ],
        [
          "dark",
          "m"
        ]
      ],
      "factors": [
        "theme",
        "size"
      ],
      "max_length": null,
      "range": null,
      "unit": null,
      "scale": null,
      "steps": null,
      "bins": null,
      "rounded": false,
      "none": null,
      "other": null,
      "period": "month",
      "grace": "48h",
      "delay": null,
      "expires": null,
      "segments": [],
      "sample": "1",
      "epsilon": "1",
      "epsilon_permanent": null,
      "shuffled": null,
      "mechanism": "grr",
      "canonical": "grr 4 5837465777/2147483648 5837465777/12279916721 2147483648/12279916721 1x4 index",
      "fingerprint": "b82ef0fe1520c29a",
      "layout": {
        "kind": "index",
        "rows": 1,
        "width": 4,
        "row_bytes": 0,
        "payload_bytes": 1
      },
      "constants": {
        "keep": "5837465777/12279916721"
      },
      "allowance": {
        "cost": 1000000,
        "per_period": 1,
        "month": 1000000,
        "lifetime": 10000000,
        "answers": null,
        "answers_ever": null
      }
    }
  }
} as const;
