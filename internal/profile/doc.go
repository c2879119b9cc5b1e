// Package profile has the configuration of agents in addition to their defaults: instructions,
// skills, subagents, commands, servers of the Model Context Protocol, files, a model, variables and
// permissions.
//
// A [Profile] has versions, which are immutable. A session names one of them, see [ParseRef]. The
// adapter of its agent converts the [Spec] to the agent's own configuration.
package profile
