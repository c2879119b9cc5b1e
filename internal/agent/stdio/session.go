package stdio

import "github.com/overwinter-dev/overwinter/internal/lazyregexp"

// SessionID matches an id that can be used in the names of a session's files and in a glob pattern.
var SessionID = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)
