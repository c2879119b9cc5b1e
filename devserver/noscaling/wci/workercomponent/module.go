// Package workercomponent adds nothing to the workers of a server.
package workercomponent

import "go.uber.org/fx"

// Module provides nothing.
var Module = fx.Options()
