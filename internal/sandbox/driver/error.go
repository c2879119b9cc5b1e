package driver

import (
	"context"
	"errors"
	"fmt"
)

// Code says what to do about an error of a driver; people read the message.
type Code string

// The codes of a driver.
const (
	// Gone: the sandbox or image does not exist, or has ended.
	Gone Code = "gone"
	// NameTaken: a running sandbox has the name.
	NameTaken Code = "name_taken"
	// Conflict: what was asked for does not go with the state that the sandbox is in.
	Conflict Code = "conflict"
	// NoFile: the sandbox is there, the file in it is not.
	NoFile Code = "no_file"
	// Invalid: the provider can not accept such a call, ever.
	Invalid Code = "invalid"
	// Denied: the credentials do not allow it.
	Denied Code = "denied"
	// Throttled: the provider asks for less, or has no room now.
	Throttled Code = "throttled"
	// Timeout: a deadline passed; what was asked for may have been done.
	Timeout Code = "timeout"
	// Unavailable: no answer came; what was asked for may have been done.
	Unavailable Code = "unavailable"
	// Damaged: the image exists, but its contents are incomplete: no sandbox can be made of it.
	Damaged Code = "damaged"
	// Unsupported: this driver can not do it at all.
	Unsupported Code = "unsupported"
)

// Final reports whether the same call would fail the same way again.
func (c Code) Final() bool {
	switch c {
	case Gone, NameTaken, NoFile, Invalid, Denied, Damaged, Unsupported:
		return true
	case Conflict, Throttled, Timeout, Unavailable:
		return false
	}
	return false
}

// Error is the only error that a driver returns.
type Error struct {
	Code Code
	Op   string // what was being done: "create", "exec", …
	ID   string // of the sandbox or image; empty where there is none
	Err  error  // the cause
}

// Errorf makes an error with a code. A %w keeps its cause.
func Errorf(code Code, op, id, format string, args ...any) *Error {
	return &Error{Code: code, Op: op, ID: id, Err: fmt.Errorf(format, args...)}
}

func (e *Error) Error() string {
	text := e.Op
	if e.ID != "" {
		text += " " + e.ID
	}
	text += ": " + string(e.Code)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Final reports whether a retry is useless.
func (e *Error) Final() bool { return e.Code.Final() }

// CodeOf returns the code of err, Timeout for a passed deadline, Unavailable for
// any other error that is not of this package, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return Timeout
	}
	return Unavailable
}
