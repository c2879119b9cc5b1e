package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// Exit codes of clone.sh in addition to those of git, which exits with 128 for every failure of a
// fetch.
const (
	exitNoRef = 66 // the server answers, but has no such branch, tag or commit
	exitNoGit = 69
)

// Messages of git and its HTTP library, in the C locale, for failures that git's exit code does not
// distinguish.
var (
	noRepository   = regexp.MustCompile(`(?m)^fatal: repository '.*' not found$`)
	httpStatus     = regexp.MustCompile(`The requested URL returned error: ([0-9]{3})`)
	unresolvedHost = regexp.MustCompile(`Could not resolve host: ([^\s;]+)`)
	// afterTime matches a time that differs in each attempt. It is removed, so that explanations
	// show repeated failures once.
	afterTime   = regexp.MustCompile(` after [0-9]+ ms`)
	neverClones = []string{
		"not valid: is this a git repository?",
		"server certificate verification failed", "SSL certificate problem", "SSL: no alternative certificate subject name",
		"not supported or disabled in libcurl", "unable to update url base from redirection", "redirects followed",
	}
)

// resolveTimeout bounds the check whether a host exists.
const resolveTimeout = 5 * time.Second

// userError is a final error caused by the session's own settings, which a person must correct.
// Temporal does not log it as an error of the worker; the activity logs it once.
func userError(err error) error {
	return temporal.NewApplicationErrorWithOptions(err.Error(), Refused, temporal.ApplicationErrorOptions{
		NonRetryable: true, Cause: err, Category: temporal.ApplicationErrorCategoryBenign,
	})
}

// judgeClone makes the error of a failed clone final if another attempt would fail in the same way:
// the repository or its ref does not exist, the server refuses it, or its host does not exist or
// may not be reached. Timeouts, 5xx and all unrecognized errors may be transient.
func (g *sandboxes) judgeClone(ctx context.Context, sb *sandbox.Sandbox, u *url.URL, authenticated bool, err error) error {
	failed, ok := errors.AsType[*stageError](err)
	if !ok {
		return err
	}
	name := secret.GitName(strings.ToLower(u.Host))
	status := 0
	if found := httpStatus.FindStringSubmatch(failed.output); found != nil {
		status, _ = strconv.Atoi(found[1]) // three digits
	}
	switch {
	case failed.unauthorized() && !authenticated:
		return userError(fmt.Errorf("%w; store its credentials as the secret %s (user:password), which are not sent to other hosts that it redirects to", err, name))
	case failed.unauthorized():
		return userError(fmt.Errorf("%w; the secret %s has its credentials, which are not sent to other hosts that it redirects to", err, name))
	case failed.code == exitNoRef, failed.code == exitNoGit, refusesRequest(status), noRepository.MatchString(failed.output),
		slices.ContainsFunc(neverClones, func(text string) bool { return strings.Contains(failed.output, text) }):
		return userError(err)
	}
	if found := unresolvedHost.FindStringSubmatch(failed.output); found != nil {
		if g.unknownHost(ctx, found[1]) {
			return userError(err)
		}
		return err
	}
	if to := g.refusedConnection(ctx, sb); to != "" {
		return userError(fmt.Errorf("%w; sandboxes may not connect to %s", err, to))
	}
	return err
}

// refusesRequest reports whether a server that answered with an HTTP status will repeat that
// answer.
func refusesRequest(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status >= 400 && status < 500
}

// unknownHost reports whether a name that git could not resolve does not exist. Git's message is
// the same if its DNS server does not answer, so the worker's DNS server is asked as well.
func (g *sandboxes) unknownHost(ctx context.Context, host string) bool {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	_, err := g.Resolve(ctx, host)
	notFound, ok := errors.AsType[*net.DNSError](err)
	return ok && notFound.IsNotFound && !notFound.IsTemporary && !notFound.IsTimeout
}

// refusedConnection returns a destination that the network of the sandbox has refused. It is empty
// if no connection was refused, or the sandbox's driver does not report refusals.
func (g *sandboxes) refusedConnection(ctx context.Context, sb *sandbox.Sandbox) string {
	refusals, _, err := sb.Refusals(ctx, 0)
	if err != nil {
		if sandbox.CodeOf(err) != sandbox.Unsupported {
			g.Logger.WarnContext(ctx, "could not list refused connections", slog.String("sandbox_id", sb.ID()), slog.Any("error", err))
		}
		return ""
	}
	for _, r := range refusals {
		if r.Verdict == verdictRefused && r.Protocol == "tcp" {
			return net.JoinHostPort(r.IP, strconv.Itoa(int(r.Port)))
		}
	}
	return ""
}

// verdictRefused is the verdict of a connection that the sandbox's network policy does not allow.
const verdictRefused = "refused"
