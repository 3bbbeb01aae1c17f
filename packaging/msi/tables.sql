-- Copyright The CSI Proxy Authors.
-- SPDX-License-Identifier: Apache-2.0
--
-- What wixl doesn't know, in the SQL of Windows Installer, a statement a line.
-- https://learn.microsoft.com/en-us/windows/win32/msi/sql-syntax

-- The properties of the command line that an administrator's call gives to the service that
-- installs. wixl names only that of the Upgrade table.
UPDATE `Property` SET `Value` = 'APPLICATIONFOLDER;EXTRA_FLAGS;KUBELET_PATH;LASTFOLDER;LASTSERVICENAME;LISTEN_ADDR;LISTEN_PORT;MACHINE;OTHERVERSION;SERVICE_NAME;WINDOWSBUILD' WHERE `Property` = 'SecureCustomProperties'

-- Another version is removed within the transaction, before the new files come.
INSERT INTO `InstallExecuteSequence` (`Action`, `Sequence`) VALUES ('RemoveExistingProducts', 1501)

-- Without the version of a program, Windows wouldn't replace one that has a version.
UPDATE `File` SET `Version` = '${Version}.0', `Language` = '1033' WHERE `File` = 'csiproxy.exe'
UPDATE `File` SET `Version` = '${Version}.0', `Language` = '1033' WHERE `File` = 'csiproxyctl.exe'

-- The service's program, which no component has: copied unless one runs, since Windows lets
-- nobody write to a program that runs; removed with the service. The type is that of a command
-- line (2) in a directory (32), deferred (1024), as SYSTEM (2048), whose failure doesn't count
-- (64): without a program, EnsureService fails.
INSERT INTO `CustomAction` (`Action`, `Type`, `Source`, `Target`) VALUES ('CopyProgram', 3170, 'APPLICATIONFOLDER', '"[System64Folder]cmd.exe" /c copy /b /y "[PACKAGEFOLDER]csi-proxy.exe" "[APPLICATIONFOLDER]csi-proxy.exe"')
INSERT INTO `InstallExecuteSequence` (`Action`, `Condition`, `Sequence`) VALUES ('CopyProgram', 'NOT Installed', 6501)
INSERT INTO `CustomAction` (`Action`, `Type`, `Source`, `Target`) VALUES ('RemoveProgram', 3170, 'APPLICATIONFOLDER', '"[System64Folder]cmd.exe" /c del /f /q "[APPLICATIONFOLDER]csi-proxy.exe" "[APPLICATIONFOLDER]csi-proxy.previous.exe" "[APPLICATIONFOLDER]csi-proxy.rollback.exe" "[APPLICATIONFOLDER]csi-proxy.new.exe"')
INSERT INTO `InstallExecuteSequence` (`Action`, `Condition`, `Sequence`) VALUES ('RemoveProgram', 'REMOVE="ALL" AND NOT UPGRADINGPRODUCTCODE', 1602)

-- The folder at the end of the machine's PATH (*), added (=) and removed (-) with csi-proxyctl.
CREATE TABLE `Environment` (`Environment` CHAR(72) NOT NULL, `Name` CHAR(255) NOT NULL LOCALIZABLE, `Value` CHAR(255) LOCALIZABLE, `Component_` CHAR(72) NOT NULL PRIMARY KEY `Environment`)
INSERT INTO `Environment` (`Environment`, `Name`, `Value`, `Component_`) VALUES ('Path', '=-*PATH', '[~];[APPLICATIONFOLDER]', 'CommandLine')
INSERT INTO `InstallExecuteSequence` (`Action`, `Sequence`) VALUES ('RemoveEnvironmentStrings', 3300)
INSERT INTO `InstallExecuteSequence` (`Action`, `Sequence`) VALUES ('WriteEnvironmentStrings', 5200)

-- Who may do what in the folder, which may lie where others can write, such as in C:\k: SYSTEM and
-- the Administrators everything, users read and run. It passes to all below, and comes from nowhere.
CREATE TABLE `MsiLockPermissionsEx` (`MsiLockPermissionsEx` CHAR(72) NOT NULL, `LockObject` CHAR(72) NOT NULL, `Table` CHAR(32) NOT NULL, `SDDLText` CHAR(255) NOT NULL, `Condition` CHAR(255) PRIMARY KEY `MsiLockPermissionsEx`)
INSERT INTO `MsiLockPermissionsEx` (`MsiLockPermissionsEx`, `LockObject`, `Table`, `SDDLText`) VALUES ('Folder', 'APPLICATIONFOLDER', 'CreateFolder', 'D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU)')
