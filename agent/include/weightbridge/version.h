/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIGHTBRIDGE_VERSION_H
#define WEIGHTBRIDGE_VERSION_H

#define WB_VERSION "0.1.0"

#endif
