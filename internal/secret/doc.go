// Package secret encrypts the secrets of an installation, which are agent keys and git credentials,
// and keeps them out of output. They are stored sealed, opened only in the activity that needs
// them, and passed to a sandbox on stdin; they are never in workflow history, events, logs or argv.
//
// A secret is sealed with AES-256-GCM, with its name as additional data, so that the bytes of one
// row do not open under another name. The key is derived (HKDF with SHA-256) from the
// installation's key, which the key id identifies:
//
//	version 2 (1 byte) key id (8 bytes) nonce (12 bytes) ciphertext and tag
//
// Every use has its own derived key: secrets, runner links, and the data of each session. Releases
// without key ids sealed with the installation's key itself; their data still opens:
//
//	version 1 (1 byte) nonce (12 bytes) ciphertext and tag
//
// An installation can have several keys: it seals with the current one and opens with all of them.
//
// A Masker finds the values of secrets in the output of agents, also encoded or divided, and
// replaces them.
//
// There are two kinds of names. NAME, in the form of an environment variable, is passed to the
// agents that require that variable. git:HOST is "user:password", used to clone a workspace from
// that host.
package secret
