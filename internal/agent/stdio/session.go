package stdio

import "github.com/overwinter-dev/overwinter/internal/lazyregexp"

// SessionID matches an id that may name the files of a session and be part of a glob pattern.
var SessionID = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)
