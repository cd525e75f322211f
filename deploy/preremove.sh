#!/bin/sh
# Runs before the package is removed, not before an upgrade. The data in /var/lib/weir stays.
set -e
case "$1" in
remove | 0) # deb and rpm
	if [ -d /run/systemd/system ]; then
		systemctl disable --now weir.service
	fi
	;;
esac
