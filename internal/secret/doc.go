// Package secret seals the secrets of an installation and keeps them out of
// sight: agent keys and git credentials. They are stored sealed, opened only in the
// activity that needs them, and handed to a sandbox by stdin; they never stand in
// workflow history, events, logs or argv.
//
// A secret is sealed with AES-256-GCM under the key of the installation, with its
// name as additional data, so that one row's bytes do not open under another name:
//
//	version (1 byte) nonce (12 bytes) ciphertext and tag
//
// Names are of two kinds. NAME, as an environment variable is named, is given to
// the agents that ask for that variable. git:HOST is "user:password", used when a
// workspace is cloned from that host.
package secret
