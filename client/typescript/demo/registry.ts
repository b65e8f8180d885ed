// Written by: deniable registry show --typescript metrics.toml
// A new browser answers one question at first: it may spend as much as one report of the dearest metric, and earns the rest in 30 days.
export default {
  "format": 1,
  "app": "demo",
  "revision": 0,
  "segments": {},
  "relay": null,
  "budget": {
    "per_month": 8000000,
    "lifetime": 480000000
  },
  "metrics": {
    "policy.read": {
      "off": null,
      "description": "Did you ever read a privacy policy to its end?",
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
      "period": "month",
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
      "fingerprint": "5e6dde4e4951cc70",
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
        "month": 1000000,
        "lifetime": 60000000,
        "answers": null,
        "answers_ever": null
      }
    },
    "ui.theme": {
      "off": null,
      "description": "Which theme do you use?",
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
      "fingerprint": "92d0b38332ff39dc",
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
        "lifetime": 60000000,
        "answers": null,
        "answers_ever": null
      }
    },
    "tabs.open": {
      "off": null,
      "description": "How many tabs are open in this browser?",
      "version": 1,
      "type": "ordinal",
      "values": [
        "1 to 5",
        "6 to 20",
        "21 to 100",
        "more than 100"
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
      "fingerprint": "8e06afe918d05fd5",
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
        "lifetime": 60000000,
        "answers": null,
        "answers_ever": null
      }
    }
  }
} as const;
