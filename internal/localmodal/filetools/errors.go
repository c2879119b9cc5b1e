package filetools

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"syscall"
)

// kindError carries the SDK's name for a failure if the cause alone does not determine it.
type kindError struct {
	kind string
	error
}

func (e kindError) Unwrap() error { return e.error }

// Messages are displayed by the SDK, followed by the path.
var messages = map[string]string{
	"NotDirectory":      "not a directory",
	"IsDirectory":       "is a directory",
	"DirectoryNotEmpty": "directory not empty",
	"NotFound":          "no such file or directory",
	"PathAlreadyExists": "path already exists",
	"PermissionDenied":  "permission denied",
	"NotSupported":      "not supported",
	"Io":                "input or output error",
}

func kindOf(err error) string {
	var known kindError
	switch {
	case errors.As(err, &known):
		return known.kind
	case errors.Is(err, syscall.ENOTDIR):
		return "NotDirectory"
	case errors.Is(err, syscall.EISDIR):
		return "IsDirectory"
	case errors.Is(err, syscall.ENOTEMPTY):
		return "DirectoryNotEmpty"
	case errors.Is(err, fs.ErrNotExist):
		return "NotFound"
	case errors.Is(err, fs.ErrExist):
		return "PathAlreadyExists"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return "PermissionDenied"
	default:
		return "Io"
	}
}

// report sends err to the SDK. Without a reader, the exit code still reports the failure.
func report(w io.Writer, err error) int {
	kind := kindOf(err)
	_ = json.NewEncoder(w).Encode(map[string]string{ //nolint:errchkjson // the caller gets the exit code in any case
		"error_kind": kind, "message": messages[kind], "detail": err.Error(),
	})
	return 1
}
