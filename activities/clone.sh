# Clones a repository into the workspace, once per sandbox.
# Arguments: workspace, state directory, URL, ref or nothing, and scheme and host of the URL. Stdin: user and password, a line each.
set -eu
workspace=$1 mark=$2/workspace-cloned url=$3 ref=${4:-} OVERWINTER_GIT_PROTOCOL=${5:-} OVERWINTER_GIT_HOST=${6:-}
[ ! -e "$mark" ] || exit 0
# One attempt clones; the others wait for it and for every git that it started.
exec 9>>"$2/workspace-clone-lock"
flock 9
[ ! -e "$mark" ] || exit 0
IFS= read -r OVERWINTER_GIT_USER || :
IFS= read -r OVERWINTER_GIT_PASSWORD || :
export OVERWINTER_GIT_USER OVERWINTER_GIT_PASSWORD OVERWINTER_GIT_PROTOCOL OVERWINTER_GIT_HOST GIT_TERMINAL_PROMPT=0
command -v git >/dev/null || { echo "there is no git in the image" >&2; exit 69; }

# Remove what an earlier attempt left.
find "$workspace" -mindepth 1 -delete

# The helper reads the credentials from the environment, so that no argv holds them. It answers for the host of the
# URL only: git also asks for hosts that it was redirected to, and that the repository names.
helper='!f() { test "$1" = get || return 0; p=; h=; while IFS="=" read -r k v && test -n "$k"; do case "$k" in protocol) p=$v ;; host) h=$v ;; esac; done; test "$p" = "$OVERWINTER_GIT_PROTOCOL" && test "$h" = "$OVERWINTER_GIT_HOST" || { echo "$p://$h asks for credentials; those of the repository are sent to $OVERWINTER_GIT_PROTOCOL://$OVERWINTER_GIT_HOST only" >&2; return 0; }; printf "username=%s\npassword=%s\n" "$OVERWINTER_GIT_USER" "$OVERWINTER_GIT_PASSWORD"; }; f'
git_with_credentials() {
	if [ -n "$OVERWINTER_GIT_USER$OVERWINTER_GIT_PASSWORD" ]; then
		git -c gc.auto=0 -c credential.helper= -c "credential.helper=$helper" "$@"
	else
		git -c gc.auto=0 -c credential.helper= "$@"
	fi
}

git_with_credentials clone --quiet -- "$url" "$workspace"
if [ -n "$ref" ]; then
	cd "$workspace"
	# A branch or a tag came with the clone; a commit may have to be asked for.
	git checkout --quiet "$ref" -- 2>/dev/null || {
		git_with_credentials fetch --quiet origin "$ref"
		git checkout --quiet --detach FETCH_HEAD
	}
fi
: >"$mark"
