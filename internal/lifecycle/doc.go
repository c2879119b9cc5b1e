// Package lifecycle has the events of all sessions in one order: changes of sessions, prompts and
// questions, without the conversation. Each is written in the transaction of the change, so none is
// missing and none reports a change that did not happen. The package is pure.
package lifecycle
