// This file lets spawn.go declare functions of the runtime without bodies.
