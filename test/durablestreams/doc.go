// Package durablestreams checks the reads of sessions' streams with third-party software: the
// conformance suite of the Durable Streams protocol, and its client for TypeScript.
package durablestreams
