package localmodal

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/task"
)

// statusOf converts errors of lower layers to statuses that the SDK understands.
func statusOf(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	var lack *box.LackError
	switch {
	case errors.As(err, &lack):
		return status.Error(codes.Unimplemented, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case isFull(err):
		return status.Errorf(codes.ResourceExhausted, "the disk that holds the local Modal's data directory is full: %v", err)
	case errors.Is(err, box.ErrGone), errors.Is(err, task.ErrClosed):
		return status.Error(codes.NotFound, "the sandbox has ended")
	default:
		return status.Error(codes.Internal, err.Error())
	}
}

// isFull reports whether err means that the disk is full.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
