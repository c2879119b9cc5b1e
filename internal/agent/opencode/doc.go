package opencode
