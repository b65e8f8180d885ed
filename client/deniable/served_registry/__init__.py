"""A registry from the server: signed, kept on the device, and only ever stricter than the app's own."""
