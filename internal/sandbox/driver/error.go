package driver

import (
	"context"
	"errors"
	"fmt"
)

// Code determines how to handle an error of a driver. The message is for people.
type Code string

// The codes of a driver.
const (
	// Gone: the sandbox or image does not exist, or has ended.
	Gone Code = "gone"
	// NameTaken: a running sandbox has the name.
	NameTaken Code = "name_taken"
	// Conflict: the request does not fit the state of the sandbox.
	Conflict Code = "conflict"
	// NoFile: the sandbox exists, but not the file in it.
	NoFile Code = "no_file"
	// Invalid: the provider will never accept such a call.
	Invalid Code = "invalid"
	// Denied: the credentials do not allow it.
	Denied Code = "denied"
	// Throttled: the provider limits the rate of requests, or has no capacity now.
	Throttled Code = "throttled"
	// Timeout: a deadline expired; the request may have been executed.
	Timeout Code = "timeout"
	// Unavailable: no response was received; the request may have been executed.
	Unavailable Code = "unavailable"
	// Damaged: the image exists, but its content is incomplete, so that no sandbox can be created
	// from it.
	Damaged Code = "damaged"
	// Unsupported: this driver cannot do it at all.
	Unsupported Code = "unsupported"
)

// Final reports whether repeating the call would fail in the same way.
func (c Code) Final() bool {
	switch c {
	case Gone, NameTaken, NoFile, Invalid, Denied, Damaged, Unsupported:
		return true
	case Conflict, Throttled, Timeout, Unavailable:
		return false
	}
	return false
}

// Error is the type of all errors that a driver returns.
type Error struct {
	Code Code
	Op   string // the operation: "create", "exec", …
	ID   string // of the sandbox or image; empty if there is none
	Err  error  // the cause
}

// Errorf returns an error with a code. %w wraps a cause.
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

// CodeOf returns the code of err, Timeout for an expired deadline, Unavailable for any other
// foreign error, and "" for nil.
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
