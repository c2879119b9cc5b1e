// Package secret seals the secrets of an installation and keeps them out of sight: agent keys and
// git credentials. They are stored sealed, opened only in the activity that needs them, and handed
// to a sandbox by stdin; they are never in workflow history, events, logs or argv.
//
// A secret is sealed with AES-256-GCM, with its name as additional data, so that one row's bytes do
// not open under another name. The key is derived (HKDF with SHA-256) from the installation's key,
// which the key id names:
//
//	version 2 (1 byte) key id (8 bytes) nonce (12 bytes) ciphertext and tag
//
// Every use has its own derived key: secrets, runner links, and the data of each session. Releases
// without key ids sealed with the installation's key itself, which still opens:
//
//	version 1 (1 byte) nonce (12 bytes) ciphertext and tag
//
// An installation can have several keys: it seals with the current one and opens with all.
//
// A Masker finds the values of secrets in what agents say, also encoded and divided, and replaces them.
//
// Names are of two kinds. NAME, as an environment variable is named, is given to
// the agents that ask for that variable. git:HOST is "user:password", used when a
// workspace is cloned from that host.
package secret
