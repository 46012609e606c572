/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CTL_MODEL_FILE_H
#define WB_CTL_MODEL_FILE_H
/*
 * A model by the config.json of its Hugging Face checkpoint.  Layer: ctl (L4).
 */
struct wb_err;
struct wb_model;

/**
 * wb__ctl_model - the model that a user means
 * @name:	of a built-in model, else the path of a config.json or of the folder it lies in
 * Returns 0, or a negative code and a sentence that names the file and what is missing in it, or
 * the models that are built in.  What the checkpoint's files hold is not looked at.  Blocks.
 */
int wb__ctl_model(const char *name, struct wb_model *out, struct wb_err *err);

#endif
