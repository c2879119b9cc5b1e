// Package oldrollout reads the rollouts of older versions of Codex, which have no items. They record
// messages and calls in the form of the model's API, in lines with a type and a payload, or, in the
// oldest, as whole lines. They are read so that no part of an old session is lost; the agent itself
// still resumes them. Package codex makes blocks of what it returns.
package oldrollout
