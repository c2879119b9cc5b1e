// Package lifecycle has the events of all sessions in one order: what happened to sessions, prompts and questions, without what was
// said. Each is written in the transaction of what it reports, so none is missing and none reports what did not happen. The
// package is pure.
package lifecycle
