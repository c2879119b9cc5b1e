package main

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
)

// temporalURL is the page of a session's workflow, whose ID is the session's.
func temporalURL(ui, namespace, id string) string {
	return strings.TrimRight(ui, "/") + "/namespaces/" + url.PathEscape(namespace) + "/workflows/" + url.PathEscape(id)
}

// openBrowser shows a page with the desktop's browser.
func openBrowser(ctx context.Context, page string) error {
	opener := "xdg-open"
	if runtime.GOOS == "darwin" {
		opener = "open"
	}
	if err := exec.CommandContext(ctx, opener, page).Run(); err != nil {
		return fmt.Errorf("open browser: %w", err)
	}
	return nil
}
